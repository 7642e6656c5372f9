"""What a sweep will take before it starts: memory, time and money; measured, tried out, or by arithmetic."""
