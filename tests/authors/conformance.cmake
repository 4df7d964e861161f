# The projects' own tests: the conformance kit on every plugin, and what two authors compare with closed forms.
include(${CMAKE_CURRENT_LIST_DIR}/home.cmake)

step("testing" ${CMAKE_CTEST_COMMAND} --test-dir ${project}/build -j2 --output-on-failure --no-tests=error)
foreach(test ademamix_conformance ademamix_apart gates_conformance json_lines_conformance prometheus_conformance rotary_conformance
    rotary_lm_conformance sparse_conformance ademamix_test rotary_test)
  if(NOT step_output MATCHES " ${test} [.]* +Passed")
    message(FATAL_ERROR "ctest did not run ${test}:\n${step_output}")
  endif()
endforeach()
