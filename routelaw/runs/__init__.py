"""The run table, the interface between training and analysis: its files, its store, importers of other tables."""
