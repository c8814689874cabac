"""Web pages that show a run: its rollouts, call trees and ledger. Reads a run's files only."""
