"""The signatures of ops: "f32[rows, n], f32[n] -> f32[rows, n]", parsed, checked in each call, and made into inputs."""
