# make demo   train on this machine as if it were two hosts, and show one rank's log
# make test   every check and every test; what this machine cannot run is skipped with its reason
#
# Both do all of their own set-up in a virtual environment: VENV=.venv, made with PYTHON=python3.

PYTHON ?= python3
VENV ?= .venv
# Most tests wait for hosts most of the time.
JOBS ?= 3
PYTEST_ARGS ?=

BIN := $(abspath $(VENV))/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip
# What the tests on real hosts use besides the tools of a minimal Debian. Debian starts firewalld when it is
# installed, so that is left to you where systemd runs.
TEST_PACKAGES := openssh-server openssh-client openssl ethtool iproute2 iptables libgomp1 nftables procps sudo \
                 busybox fish shellcheck tcsh zsh \
                 nfs-ganesha nfs-ganesha-vfs nfs-common rpcbind libnfs13 libfuse2 python3-fusepy \
                 dbus ipset ufw $(if $(wildcard /run/systemd/system),,firewalld) \
                 docker.io docker-registry podman crun

.DEFAULT_GOAL := help
.PHONY: help demo test check unit bench packages libgomp clean
.SUFFIXES:

help:
	@echo "make demo    install, train on this machine as if it were two hosts, show the log of rank 3"
	@echo "make test    install what the tests need, then lint, types and every test"
	@echo "make check   lint and types only"
	@echo "make unit    the tests that need neither root nor Paddle"
	@echo "make bench   the speed budgets of docs/architecture.md, measured"
	@echo "make clean   remove the virtual environment and the caches"

demo: libgomp $(VENV)/.with-paddle
	@echo
	@echo '$$ clusterkit launch inventories/local.ini examples/train.py'
	@PATH="$(BIN):$$PATH" clusterkit launch inventories/local.ini examples/train.py
	@echo
	@echo '$$ clusterkit logs --rank 3'
	@PATH="$(BIN):$$PATH" clusterkit logs --rank 3

test: packages check
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

check: $(VENV)/.with-tests
	$(BIN)/ruff check --output-format=concise .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.with-tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not hosts and not paddle" $(PYTEST_ARGS)

bench: $(VENV)/.with-bench
	@for script in tests/bench/*.py; do $(BIN)/python -m tests.bench.$$(basename $$script .py) || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

# --- Set-up --------------------------------------------------------------------------------------------------

# Without root the tests that need these skip themselves, and say so.
packages:
	@scripts/debian-packages "make test" $(TEST_PACKAGES) || [ $$? = 3 ]

libgomp:
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null \
	  || scripts/debian-packages PaddlePaddle libgomp1

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "clusterkit needs Python 3.10 or newer, which $(PYTHON) is not. Name one: make PYTHON=python3.11 …" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. To get that: sudo apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  echo "Making the virtual environment $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@touch $@

$(VENV)/.with-paddle: $(VENV)/.made pyproject.toml
	@echo "Installing clusterkit and PaddlePaddle for CPU into $(VENV) (once, some 200 MB: minutes on a slow line)"
	@$(PIP) install --quiet --editable '.[cpu]'
	@touch $@

# Dependency groups need pip 25.1; Debian 12 makes environments with 23.0.
$(VENV)/.with-tests: $(VENV)/.with-paddle
	@echo "Installing the test tools into $(VENV) (once)"
	@$(PIP) install --quiet --upgrade 'pip>=25.1'
	@$(PIP) install --quiet --group test
	@touch $@

$(VENV)/.with-bench: $(VENV)/.with-tests
	@echo "Installing what preflight is measured against into $(VENV) (once)"
	@$(PIP) install --quiet --group bench
	@touch $@
