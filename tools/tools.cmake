# Command-line tools: thin mains over public headers.
