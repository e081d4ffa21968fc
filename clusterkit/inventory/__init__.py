"""Read an Ansible INI inventory, and type the variables that are ours."""
