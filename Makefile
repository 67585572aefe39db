# SPDX-License-Identifier: Apache-2.0
#
# The commands a person types. CMake does the building; see CONTRIBUTING.md.
#
#   make check       install what is missing, build, run the everyday tests
#   make check-full  the long tests as well
#   make families    what is proved of each family of models, as a table
#   make demo        train a small language model on real text, end to end
#   make             build only
#   make install     PREFIX=/usr/local

PREFIX ?= /usr/local
BUILD ?= build
JOBS ?= $(shell nproc)

# What the build and the tests need, as Debian 12 packages.
PACKAGES := build-essential cmake ninja-build mold pkg-config git \
  libopenmpi-dev openmpi-bin libdnnl-dev libyaml-dev libjansson-dev \
  libpcre2-dev libutf8proc-dev libhdf5-dev libzstd-dev zlib1g-dev liblzma-dev \
  libjpeg-dev libpng-dev libwebp-dev libarchive-dev \
  libavformat-dev libavcodec-dev libswscale-dev \
  libxxhash-dev libcmocka-dev universal-ctags procps

export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1

.PHONY: all deps configure build check check-full families install clean

all: build

# Installs what is missing; as an ordinary user without sudo it says what.
deps:
	@missing=""; for p in $(PACKAGES); do \
	  dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' \
	    || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then sudo=""; \
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo=sudo; \
	else echo "Please install these packages, then try again:"; \
	  echo "  apt-get install$$missing"; exit 1; fi; \
	echo "installing:$$missing"; \
	$$sudo apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq \
	  --no-install-recommends $$missing >/dev/null

configure: deps
	@test -f $(BUILD)/build.ninja || \
	  cmake -S . -B $(BUILD) -G Ninja -DLOONG_WERROR=ON \
	    -DCMAKE_INSTALL_PREFIX=$(PREFIX)

build: configure
	@cmake --build $(BUILD) -j $(JOBS)

check: build
	ctest --test-dir $(BUILD) --output-on-failure -LE full -j $(JOBS)

check-full: build
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

# With PYTHON (tests/golden/README.md) also what transformers has to do.
PYTHON ?=
FAMILIES := golden|golden_bf16|router_losses|hf|hf_fields|fp8_families|presets
FAMILIES := $(FAMILIES)|overrides|recipe_model|from_hf|train_midtrain
FAMILIES := $(FAMILIES)|hf_defaults|hf_types|vision|latent_memory
FAMILIES := $(FAMILIES)|map|names|draft|predictors|hf_import
families: build
	@if [ -n "$(PYTHON)" ]; then \
	  cmake -S . -B $(BUILD) -DLOONG_ORACLE:FILEPATH=$$(command -v $(PYTHON)) \
	    >/dev/null; fi
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) \
	  -R '^($(FAMILIES)|families_all|dry_run_all|models_reference|oracle_.*)$$'
	@ctest --test-dir $(BUILD) -N -L oracle | grep -q 'Tests: 0' || exit 0; \
	  echo "--- exported, fields: as committed; PYTHON=... runs them again"
	@$(BUILD)/models_reference --families

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD)

# ---- make demo ---------------------------------------------------------------
# Real text (the Python documentation of Debian), a tokenizer trained on it, a
# data set, a language model trained on two ranks, stopped, resumed, exported.
# What is there already is not made again; an interrupted training goes on.

DEMO := demo
CORPUS := /usr/share/doc/python3.11/html/_sources
TOOLS := $(BUILD)
VOCABULARY := 8192
STOP_AT := 200
OVERRIDES :=
RUN := mpirun --oversubscribe -n 2 $(TOOLS)/loongrun \
  configs/recipes/demo_pretrain.yaml $(OVERRIDES)
THERE = echo "--- already there: $(1); to begin again: rm -r $(2)"

.PHONY: demo corpus demo-tokenizer demo-text demo-model

corpus: build
	@test -d $(CORPUS) || { \
	  if [ "$$(id -u)" = 0 ]; then sudo=""; \
	  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo=sudo; \
	  else echo "Please install: apt-get install python3.11-doc"; exit 1; fi; \
	  $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo \
	    apt-get install -y -qq --no-install-recommends python3.11-doc >/dev/null; }

demo-tokenizer: corpus
	@mkdir -p $(DEMO)
	@if [ -f $(DEMO)/tokenizer.json ]; then \
	  $(call THERE,the text in $(CORPUS) and its tokenizer,$(DEMO)); \
	else \
	  echo "--- a tokenizer of the text in $(CORPUS)"; \
	  rm -f $(DEMO)/text.idx; \
	  $(TOOLS)/loong-data tokenizer train --vocab-size $(VOCABULARY) \
	    --suffixes .rst.txt --output $(DEMO)/tokenizer.json $(CORPUS); \
	fi

demo-text: demo-tokenizer
	@if [ -f $(DEMO)/text.idx ]; then \
	  $(call THERE,the indexed data set,$(DEMO)/text.*); \
	else \
	  echo "--- the data; the unigram entropy is what a model without" \
	    "context reaches"; \
	  $(TOOLS)/loong-data index --tokenizer $(DEMO)/tokenizer.json \
	    --append-eod --shuffle 1 --suffixes .rst.txt \
	    --output-prefix $(DEMO)/text $(CORPUS) && \
	  $(TOOLS)/loong-data inspect --validate --vocab-size $(VOCABULARY) \
	    $(DEMO)/text; \
	fi

# The export is what a training does last.
demo-model: demo-text
	@if [ -f $(DEMO)/huggingface/model.safetensors ]; then \
	  $(call THERE,the trained model,$(DEMO)/checkpoints $(DEMO)/huggingface); \
	  $(call THERE,its export,$(DEMO)/huggingface); \
	elif [ -f $(DEMO)/checkpoints/latest ]; then \
	  echo "--- going on from the checkpoint" \
	    "$$(cat $(DEMO)/checkpoints/latest)"; \
	  $(RUN) checkpoint.load=auto; \
	else \
	  echo "--- training, until a request to stop after $(STOP_AT) steps"; \
	  $(RUN) train.exit_interval=$(STOP_AT); \
	  test $$? = 75 || exit 1; \
	  echo "--- resuming from the checkpoint"; \
	  $(RUN) checkpoint.load=auto; \
	fi

demo: demo-model
	@echo "--- what came out"
	@$(TOOLS)/loong-ckpt inspect $(DEMO)/huggingface | head -8
	@ls -l $(DEMO)/huggingface
