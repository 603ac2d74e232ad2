# make run      a virtual environment, what run.py needs, and the shipped benchmark on this machine; without an NVIDIA
#               driver torch is PyTorch's CPU build
# make test     everything set up and what proves each capability, as .ci/run does
# make quick    style, types, import contracts, and the short tests that need neither torch nor hosts: minutes
# make coverage the tests that need neither torch nor hosts, which have to run so many of the product's lines (pyproject.toml)
# make nightly  make test with many more samples, the tests that take long, coverage, and mutants that tests have to notice
# make matrix   install, make run and a run on hosts in stock Debian 12 and 13, as a user without rights
# make bench    the measurements of tests/performance, written into docs/data/performance.csv
# make accelerator  the rows of docs/reference/measurements.md that fit this machine's accelerator, the worthiest first
# make docs     the site of docs/ in .cache/site, without the network once its tools are there
# make lint     style, types and import contracts only
# make clean    test hosts, caches and the virtual environment away; results stay
#
# VENV=.venv      where the virtual environment is
# PYTHON=python3  the Python it is made with; without it the newest-tested one of 3.11 or later is looked for
# PIP_ARGS=...    arguments for pip install and download, for example --index-url of a mirror
# TORCH_ARGS=...  arguments of pip for another build of torch, which is then not locked (requirements/*.lock lock all else)
# PACKAGE=...     make test runs the tests of one package alone: network, simulation/network, run_benchmarks, ...
# ARGS=...        arguments for run.py (make run), names of measurements (make bench), --minutes N (make accelerator)

VENV ?= .venv
PYTHON ?=
PIP_ARGS ?=
PACKAGE ?=
TORCH_ARGS ?=
ARGS ?=

RUN_FILES := $(wildcard requirements/controller.* requirements/workload.* requirements/torch*.lock) scripts/install.sh
DEV_FILES := $(RUN_FILES) $(wildcard requirements/dev.* requirements/chakra.* requirements/analysis.* requirements/oracles.*)

export PIP_ARGS TORCH_ARGS

.PHONY: help run test quick coverage nightly matrix bench accelerator docs lint clean base-image

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

run: $(VENV)/.installed-run
	$(VENV)/bin/python run_benchmarks/run.py $(ARGS)

test:
	tests/cluster/setup.sh
	$(MAKE) --no-print-directory -j 2 $(VENV)/.installed-dev $(if $(PACKAGE),,base-image)
	scripts/check.sh $(VENV) $(if $(PACKAGE),package $(PACKAGE),test)

quick: $(VENV)/.installed-dev
	scripts/check.sh $(VENV) quick

coverage: $(VENV)/.installed-dev
	scripts/check.sh $(VENV) coverage

nightly:
	tests/cluster/setup.sh
	$(MAKE) --no-print-directory -j 2 $(VENV)/.installed-dev base-image
	scripts/check.sh $(VENV) nightly

matrix:
	tests/cluster/setup.sh
	$(MAKE) --no-print-directory $(VENV)/.installed-dev
	$(VENV)/bin/python -m tests.matrix $(ARGS)

lint: $(VENV)/.installed-dev
	scripts/check.sh $(VENV) lint

bench:
	tests/cluster/setup.sh
	$(MAKE) --no-print-directory $(VENV)/.installed-dev
	$(VENV)/bin/python -m tests.performance $(ARGS)

accelerator: $(VENV)/.installed-run
	$(VENV)/bin/python -m tests.performance.accelerator $(ARGS)

docs: $(VENV)/.installed-dev
	$(VENV)/bin/python -m tests.docs.site

# pip works on one core.
base-image: | $(VENV)/bin/pip
	$(VENV)/bin/python -m tests.cluster.images

$(VENV)/bin/pip:
	scripts/make_venv.sh $(VENV) $(PYTHON)

$(VENV)/.installed-run: $(RUN_FILES) | $(VENV)/bin/pip
	scripts/install.sh $(VENV) run
	touch $@

$(VENV)/.installed-dev: $(DEV_FILES) | $(VENV)/bin/pip
	scripts/install.sh $(VENV) dev
	touch $@ $(VENV)/.installed-run

clean:
	scripts/clean.sh $(VENV)
