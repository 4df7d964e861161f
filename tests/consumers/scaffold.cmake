# What an author does: new-plugin, configure, build, test, train; with the package installed in PREFIX and nothing else
# of Tenon. KIND says which kind, PRESET which of the project's builds; everything happens in the fresh folder WORK.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

set(name made_${KIND})
set(project ${WORK}/project)
set(build ${project}/build/${PRESET})
set(program ${PREFIX}/bin/tenon)
unset(ENV{TENON_DATA_DIR})
unset(ENV{TENON_PLUGIN_PATH})
set(ENV{OMP_WAIT_POLICY} passive)

# ours(TEXT): fails if TEXT names a file of the sources or of the build other than the installed ones and WORK's.
function(ours text where)
  string(REPLACE "${PREFIX}" "" text "${text}")
  string(REPLACE "${WORK}" "" text "${text}")
  foreach(folder ${SOURCE} ${BUILD})
    string(FIND "${text}" "${folder}" at)
    if(NOT at EQUAL -1)
      string(SUBSTRING "${text}" ${at} 200 found)
      message(FATAL_ERROR "${where} names a file of Tenon's own tree: ${found}")
    endif()
  endforeach()
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
step("making the project" ${program} new-plugin --kind ${KIND} --name ${name} --out ${project})
set(flags)
if(PRESET STREQUAL release)   # the others' flags are those of the preset
  set(flags "-DCMAKE_CXX_FLAGS=${CXX_FLAGS} -Wall -Wextra -Werror")
endif()
step("configuring" ${CMAKE_COMMAND} --preset ${PRESET} -S ${project} -DCMAKE_PREFIX_PATH=${PREFIX}
  -DCMAKE_CXX_COMPILER=${CXX} ${flags} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
step("building" ${CMAKE_COMMAND} --build ${build})

file(READ ${build}/compile_commands.json commands)
ours("${commands}" "compile_commands.json")
file(READ ${build}/build.ninja commands)
ours("${commands}" "build.ninja")
execute_process(COMMAND ninja -C ${build} -t deps OUTPUT_VARIABLE headers RESULT_VARIABLE status)
if(NOT status EQUAL 0 OR NOT headers MATCHES "include/tenon/plugin.hpp")
  message(FATAL_ERROR "the build's list of headers cannot be read:\n${headers}")
endif()
ours("${headers}" "the list of included headers")

step("testing" ${CMAKE_COMMAND} -E chdir ${project} ${CMAKE_CTEST_COMMAND} --preset ${PRESET} --no-tests=error)
set(example ${name}_trains)
if(KIND STREQUAL simulator)
  set(example ${name}_simulates)
endif()
foreach(test ${name}_conformance ${example})
  if(NOT step_output MATCHES "${test} .*Passed")
    message(FATAL_ERROR "ctest did not run ${test}:\n${step_output}")
  endif()
endforeach()

if(NOT PRESET STREQUAL release)
  return()
endif()

if(KIND STREQUAL simulator)
  step("simulating" ${CMAKE_COMMAND} -E env TENON_PLUGIN_PATH=${build} ${program} simulate ${project}/run.toml --quiet --json
    --set simulate.samples=20 --set simulate.folder=${WORK}/samples)
  if(NOT step_output MATCHES "\"finished\": 20," OR NOT EXISTS ${WORK}/samples/samples/000019/final.npy)
    message(FATAL_ERROR "the simulation did not finish 20 samples:\n${step_output}")
  endif()
  return()
endif()

# A run from its TOML example, of more than the few steps of the test.
step("training" ${CMAKE_COMMAND} -E env TENON_PLUGIN_PATH=${build} ${program} train ${project}/run.toml --quiet
  --set run.steps=40 --run-dir ${WORK}/run)
file(READ ${WORK}/run/1/summary.json summary)
if(NOT summary MATCHES "\"status\": \"completed\"" OR NOT summary MATCHES "\"steps\": 40[^0-9]")
  message(FATAL_ERROR "the run did not complete 40 steps:\n${summary}")
endif()
file(READ ${WORK}/run/1/plugins.lock lock)
if(NOT lock MATCHES "example.${name}" OR NOT lock MATCHES "${build}/${name}.so")
  message(FATAL_ERROR "plugins.lock does not name the plugin:\n${lock}")
endif()
