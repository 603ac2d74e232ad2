# Tools of others on each host by itself, as far as they are installed.
tools = ["ascend-dmi"]
