"""What `cfuica doctor` looks at: the installation, the machine, the data, and the kernels.

Nothing here may need a package that could be missing until it has been looked for, and nothing
that a bug report must not hold may be told: home folders are written as ~.
"""
