"""What a person declares: servers, tools, resources, prompts, and what follows from their signatures."""
