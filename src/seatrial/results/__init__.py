"""What a trial measured and concluded: records, parsers, requirements, verdicts."""
