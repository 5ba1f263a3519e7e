"""Allow `python -m segconf_cli`, which torchrun needs."""

from segconf_cli.main import main

if __name__ == "__main__":
    main()
