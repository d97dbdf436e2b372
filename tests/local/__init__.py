"""Tests of what runs on one machine: deploy/local."""
