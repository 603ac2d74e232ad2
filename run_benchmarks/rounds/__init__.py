"""One round of a case: prepared, started, watched, ended, collected, recorded."""
