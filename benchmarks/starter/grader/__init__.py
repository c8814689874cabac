"""Starter's grader programs: shipped as bytes into the grading sandbox, where only the standard library is."""
