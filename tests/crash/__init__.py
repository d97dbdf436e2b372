"""What happens when processes die, freeze and are operated upon: one effect, and a truthful ledger."""
