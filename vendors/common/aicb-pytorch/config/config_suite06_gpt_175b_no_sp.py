# Row 6 of AICB's specification 1.1, row 5 without sequence parallelism: 64 ranks or a multiple.
extends = "config_suite05_gpt_175b"
enable_sequence_parallel = False
