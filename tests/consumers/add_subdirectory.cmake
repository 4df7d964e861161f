# The outer project of add_subdirectory/, in a fresh folder WORK. Building it would compile the whole core again, minutes
# for a test: the plugin's object and one area of the core stand for it, unless TENON_WHOLE_CONSUMERS is set in the
# environment.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

file(REMOVE_RECURSE ${WORK})
step("configuring" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${WORK} -DTENON=${SOURCE}
  -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
  -DCMAKE_C_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
if(NOT "$ENV{TENON_WHOLE_CONSUMERS}" STREQUAL "")
  step("building" ${CMAKE_COMMAND} --build ${WORK} -j2)
  step("testing" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK} --output-on-failure --no-tests=error)
  file(GLOB built ${WORK}/tenon/bin/* ${WORK}/tenon/lib/tenon/plugins/*)
else()
  step("building" ${CMAKE_COMMAND} --build ${WORK} -j2 --target tenon_core_tensor
    CMakeFiles/sawtooth.dir/sawtooth.cpp.o)
  # What the rest would build: the core and the outer project's own.
  step("listing" ninja -C ${WORK} -t inputs all)
  if(NOT step_output MATCHES "libtenon_core" OR NOT step_output MATCHES "sawtooth.cpp.o")
    message(FATAL_ERROR "the build does not make the core and the plugin:\n${step_output}")
  endif()
  string(REGEX MATCHALL "tenon/(kernels|plugins|cli|tests)/[^ \n]*\\.o\n" built "${step_output}")
endif()
if(built)
  message(FATAL_ERROR "more of Tenon is built than the core: ${built}")
endif()
