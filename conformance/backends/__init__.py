"""Backends: implementations behind the worker protocol, each with its pinned requirements beside it."""
