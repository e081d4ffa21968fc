"""`python -m clusterkit` and the `clusterkit` console script."""

from clusterkit.cli.app import main

if __name__ == "__main__":
    main()
