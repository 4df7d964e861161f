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
  -DCMAKE_INSTALL_LIBDIR=lib/of/this/project   # Tenon's counts
  -DCMAKE_CXX_COMPILER=${CXX} ${flags} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
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

# With Tenon's own prefix it lies where the program looks.
step("installing" ${CMAKE_COMMAND} --install ${build} --prefix ${WORK}/installed)
file(GLOB_RECURSE shipped RELATIVE ${PREFIX} ${PREFIX}/tenon_device_cpu.so)
get_filename_component(folder ${shipped} DIRECTORY)
if(NOT EXISTS ${WORK}/installed/${folder}/${name}.so)
  message(FATAL_ERROR "the plugin is not installed in ${folder}:\n${step_output}")
endif()

# Editors: clangd reads the preset's list of commands, and gdb finds the sources of the plugin.
if(PRESET STREQUAL dev)
  file(READ ${project}/.clangd clangd)
  string(REGEX MATCH "CompilationDatabase: (build/[a-z]+)" found "${clangd}")
  if(NOT found OR NOT EXISTS ${project}/${CMAKE_MATCH_1}/compile_commands.json)
    message(FATAL_ERROR ".clangd names no folder with a compile_commands.json:\n${clangd}")
  endif()
  file(READ ${project}/.vscode/launch.json launch)
  string(JSON words GET "${launch}" configurations 0 args)
  string(JSON folder GET "${launch}" configurations 0 environment 0 value)
  string(REPLACE "\${workspaceFolder}" ${project} folder "${folder}")
  if(NOT words MATCHES "\"tenon\".*\"train\".*\"run.toml\"" OR NOT EXISTS ${folder}/${name}.so)
    message(FATAL_ERROR "launch.json does not train with the plugin of the preset dev:\n${launch}")
  endif()
  step("looking for debug information" readelf --wide --sections ${build}/${name}.so)
  if(NOT step_output MATCHES "debug_info")
    message(FATAL_ERROR "the plugin of the preset dev has no debug information:\n${step_output}")
  endif()
endif()

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

# What gets a device's memory computes there, or refuses a device with memory of its own before it reads any.
if(KIND MATCHES "^(layer|optimizer|precision|sync)$")
  set(cases)
  if(EXISTS ${project}/conformance.toml)
    set(cases --cases ${project}/conformance.toml)
  endif()
  step("testing on a device apart" ${program} conformance ${build}/${name}.so --device cuda_emulated ${cases})
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
