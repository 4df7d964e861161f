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

# The documentation: every page, example and README of a plugin, and its links among them.
file(GLOB pages RELATIVE ${SOURCE} ${SOURCE}/docs/*.md ${SOURCE}/docs/*/*.md ${SOURCE}/plugins/*/*/README.md
  ${SOURCE}/sdk/examples/*.md ${SOURCE}/sdk/examples/*/*)
list(LENGTH pages count)
if(count LESS 100)
  message(FATAL_ERROR "found ${count} pages in ${SOURCE}.")
endif()
foreach(page IN LISTS pages)
  if(NOT EXISTS ${PREFIX}/share/doc/tenon/${page})
    message(FATAL_ERROR "${PREFIX}/share/doc/tenon lacks ${page}.")
  endif()
endforeach()
