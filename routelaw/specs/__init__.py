"""What a run is and what it costs, in exact numbers and without tensors."""
