# Copies PROJECTS into the fresh folder WORK, writes their data and builds them against the package in PREFIX, with warnings
# as errors and no header but the installed ones.
set(cache $ENV{HOME}/.cache/ccache)
include(${CMAKE_CURRENT_LIST_DIR}/home.cmake)
if(NOT DEFINED ENV{CCACHE_DIR})
  set(ENV{CCACHE_DIR} ${cache})
endif()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/home)
file(COPY ${PROJECTS}/ DESTINATION ${project} PATTERN build EXCLUDE)

# JSON of outside: escapes, other keys, an empty line.
set(lines "\n")
foreach(who Anna Boris Chloe Dmitri Elena Frida Goran Hana)
  foreach(does meets sees calls helps)
    foreach(place "caf\\u00e9" market harbour library station garden)
      string(APPEND lines "{\"place\": \"${place}\", \"text\": \"${who} ${does} \\\"me\\\" in the ${place}.\", \"year\": 1900}\n")
    endforeach()
  endforeach()
endforeach()
file(WRITE ${project}/texts.jsonl "${lines}")

# Debug information takes longer than the code; -O1, since the plugins are small and run briefly.
step("configuring" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${project} -B ${project}/build -DCMAKE_PREFIX_PATH=${PREFIX}
  -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_CXX_FLAGS=${CXX_FLAGS} -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror"
  -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER})
step("building" ${CMAKE_COMMAND} --build ${project}/build -j2)

# Neither headers nor libraries of Tenon's own tree took part.
get_filename_component(source ${PROJECTS}/../../.. ABSOLUTE)
step("listing headers" ninja -C ${project}/build -t deps)
if(NOT step_output MATCHES "${PREFIX}/include/tenon/plugin.hpp")
  message(FATAL_ERROR "the build's list of headers cannot be read:\n${step_output}")
endif()
file(READ ${project}/build/build.ninja commands)
string(REPLACE "${PREFIX}" "" found "${step_output}${commands}")
string(REPLACE "${WORK}" "" found "${found}")
string(FIND "${found}" "${source}/" at)
if(NOT at EQUAL -1)
  string(SUBSTRING "${found}" ${at} 200 found)
  message(FATAL_ERROR "the build names a file of Tenon's own tree: ${found}")
endif()

# Each is small, as the pages promise; an interface that makes authors write more shows here.
file(GLOB sources ${project}/*/*.cpp)
foreach(source IN LISTS sources)
  file(STRINGS ${source} lines)
  list(LENGTH lines count)
  if(count GREATER 150)
    message(FATAL_ERROR "${source} has ${count} lines, expected at most 150.")
  endif()
endforeach()
