# Installs the whole of BUILD into a fresh PREFIX and checks that nothing a user builds against remembers where it
# was built.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

file(REMOVE_RECURSE ${PREFIX})
step("installing" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX})

file(GLOB_RECURSE package ${PREFIX}/${LIBDIR}/cmake/* ${PREFIX}/${LIBDIR}/pkgconfig/*)
if(NOT package)
  message(FATAL_ERROR "${PREFIX}/${LIBDIR} has no CMake package.")
endif()
must_not_name(${BUILD} ${package})
must_not_name(${SOURCE} ${package})
