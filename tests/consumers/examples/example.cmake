# Copies EXAMPLE out of the tree, builds and tests it against PREFIX, trains it for STEPS steps (the loss must fall), and
# runs its comparison at two seeds and a few steps. A fresh folder WORK holds everything.
include(${CMAKE_CURRENT_LIST_DIR}/../steps.cmake)

# first_and_last(METRICS NAME FIRST LAST): the first and the last value of metric NAME ("train/loss") in a metrics.jsonl.
function(first_and_last metrics name first last)
  get_filename_component(split ${name} DIRECTORY)
  get_filename_component(metric ${name} NAME)
  file(STRINGS ${metrics} lines REGEX "\"split\": \"${split}\", \"name\": \"${metric}\"")
  if(NOT lines)
    message(FATAL_ERROR "${metrics} has no ${name}.")
  endif()
  list(GET lines 0 line)
  string(JSON value GET "${line}" value)
  set(${first} ${value} PARENT_SCOPE)
  list(GET lines -1 line)
  string(JSON value GET "${line}" value)
  set(${last} ${value} PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
file(COPY ${EXAMPLE}/ DESTINATION ${WORK}/${NAME} PATTERN build EXCLUDE)
set(ENV{OMP_WAIT_POLICY} passive)
set(tenon ${PREFIX}/bin/tenon)

step("configuring" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${WORK}/${NAME} -B ${WORK}/${NAME}/build/release -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS} -O1"
  -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
step("building" ${CMAKE_COMMAND} --build ${WORK}/${NAME}/build/release)
step("testing" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/${NAME}/build/release --output-on-failure --no-tests=error)
file(READ ${WORK}/${NAME}/${NAME}.toml base)
if(base MATCHES "\n\\[power\\]")   # no run, but a site
  step("smoothing" ${CMAKE_COMMAND} -E env TENON_PLUGIN_PATH=${WORK}/${NAME}/build/release ${tenon} power
    ${WORK}/${NAME}/${NAME}.toml --set power.folder=${WORK}/power)
  if(NOT EXISTS ${WORK}/power/table.md)
    message(FATAL_ERROR "tenon power wrote no table.md:\n${step_output}")
  endif()
  return()
endif()
step("testing on a device apart" ${tenon} conformance ${WORK}/${NAME}/build/release/${NAME}.so --device cuda_emulated
  --cases ${WORK}/${NAME}/conformance.toml)

step("training" ${tenon} train ${WORK}/${NAME}/${NAME}.toml --run-dir ${WORK}/run
  --set run.steps=${STEPS} --set run.eval_every=0 --set run.eval_batches=4 --set run.log_every=1)
first_and_last(${WORK}/run/1/metrics.jsonl train/loss first last)
if(NOT last LESS first)
  message(FATAL_ERROR "${NAME}: the training loss did not fall: ${first} at the first step, ${last} at the last.")
endif()

# The comparison as its file says, but for seeds and length: fewer in a copy, because an experiment takes no --set.
file(GLOB experiment ${WORK}/${NAME}/${NAME}_vs_*.toml)
file(READ ${experiment} experiment)
string(REGEX REPLACE "seeds = [^\n]*" "seeds = [1, 2]" experiment "${experiment}")
string(REGEX REPLACE "steps = [0-9]+" "steps = 3" experiment "${experiment}")
file(WRITE ${WORK}/${NAME}/short.toml "${experiment}")
file(READ ${WORK}/${NAME}/${NAME}.toml base)
string(REGEX REPLACE "eval_batches = [0-9]+" "eval_batches = 2" base "${base}")
file(WRITE ${WORK}/${NAME}/${NAME}.toml "${base}")
# Runs that may not be compared end it with a failure.
step("comparing" ${tenon} ab ${WORK}/${NAME}/short.toml --out ${WORK}/ab)
file(SIZE ${WORK}/ab/report.html size)
if(size LESS 1000)
  message(FATAL_ERROR "${WORK}/ab/report.html has ${size} bytes.")
endif()
