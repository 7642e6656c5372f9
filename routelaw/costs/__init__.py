"""What a run will take, by arithmetic and without tensors: memory, bytes sent, time; data sheets of devices."""
