"""The ground floor: errors, files, running programs, YAML with lines in its errors, field types.

Nothing here knows a site, a benchmark or a trial.
"""
