"""MCP servers that a task can ask for, one file each; they run inside the sandbox, beside the harness.

A task names servers (`Task.mcp_servers`); a harness receives them as `LaunchContext.mcp_servers`. Imports only
plain data.
"""
