# Configures, builds and tests the project CONSUMER against the package installed in PREFIX, in a fresh folder WORK.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

file(REMOVE_RECURSE ${WORK})
step("configuring" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${WORK}
  -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
  -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
step("building" ${CMAKE_COMMAND} --build ${WORK})
step("testing" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK} --output-on-failure --no-tests=error)
