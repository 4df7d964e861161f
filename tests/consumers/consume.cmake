# Installs the sdk component of BUILD into WORK/prefix, then configures, builds and tests the project CONSUMER there.
function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${what} failed with ${status}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
step("installing" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component sdk)
step("configuring" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${WORK}/build
  -DCMAKE_PREFIX_PATH=${WORK}/prefix -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
  -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
step("building" ${CMAKE_COMMAND} --build ${WORK}/build)
step("testing" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/build --output-on-failure --no-tests=error)

# The package must not remember where it was built.
file(GLOB_RECURSE package ${WORK}/prefix/${LIBDIR}/cmake/*)
foreach(file IN LISTS package)
  file(READ ${file} text)
  string(FIND "${text}" "${BUILD}" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} names the build folder ${BUILD}.")
  endif()
endforeach()
