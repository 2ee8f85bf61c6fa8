"""What a trial measured and what was concluded from it: records, parsers, requirements, verdicts."""
