"""llama.cpp, through its C interface."""
