"""The operation protocol as an exhaustive model, over the decisions and the state table that ship."""
