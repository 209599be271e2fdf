"""Convolutions of cuDNN's as C: a source file and a header, for programs and compilers without Python."""
