"""The paper's studies: what each asks, its figure, and its claims, judged on anybody's runs."""
