"""The signatures of ops: "f32[rows, n], f32[n] -> f32[rows, n]": parsing, binding in each call, and random inputs."""
