"""Results of a trial: records, requirements, figures, judgements, verdict, baselines."""
