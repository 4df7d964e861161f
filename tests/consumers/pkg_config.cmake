# The plugin and the program of find_package/, built by hand with what pkg-config says of the package in PREFIX.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(ENV{PKG_CONFIG_PATH} ${PREFIX}/${LIBDIR}/pkgconfig)
# The first command stands in docs/install.md.
step("building the plugin" sh -c
  "${CXX} ${CXX_FLAGS} $(pkg-config --variable=plugin_cflags tenon) $(pkg-config --cflags tenon) '${CONSUMER}/sawtooth.cpp' \
   -o '${WORK}/sawtooth.so' $(pkg-config --variable=plugin_ldflags tenon) $(pkg-config --libs tenon)")
step("building the program" sh -c
  "${CXX} ${CXX_FLAGS} -std=c++20 $(pkg-config --cflags tenon) '${CONSUMER}/find_sawtooth.cpp' -o '${WORK}/find_sawtooth' \
   $(pkg-config --libs tenon) -Wl,-rpath,$(pkg-config --variable=libdir tenon)")
step("running the program" ${WORK}/find_sawtooth ${WORK}/sawtooth.so)

step("listing exports" sh -c "nm -D --defined-only '${WORK}/sawtooth.so' | cut -d' ' -f3")
if(NOT step_output STREQUAL "tenon_plugin_v1\n")
  message(FATAL_ERROR "expected the one export tenon_plugin_v1, found:\n${step_output}")
endif()
# The section reads as the page about the ABI shows it.
file(READ ${PREFIX}/share/doc/tenon/docs/plugins/abi.md page)
step("copying the section" objcopy -O binary --only-section=.tenon_abi ${WORK}/sawtooth.so ${WORK}/section)
file(STRINGS ${WORK}/section lines REGEX "^[a-z]")
list(FILTER lines EXCLUDE REGEX "^(arch|compiler) ")   # of this machine
list(LENGTH lines count)
foreach(line IN LISTS lines)
  string(FIND "${page}" "\n${line}\n" at)
  if(at EQUAL -1 OR count LESS 10)
    message(FATAL_ERROR "docs/plugins/abi.md does not show '${line}' of the section, which has ${count} lines.")
  endif()
endforeach()

step("asking for the program" pkg-config --variable=program tenon)
string(STRIP "${step_output}" program)
step("inspecting" ${program} inspect ${WORK}/sawtooth.so)
if(NOT step_output MATCHES "outside.sawtooth")
  message(FATAL_ERROR "tenon inspect does not know the plugin:\n${step_output}")
endif()
step("asking for the version" pkg-config --modversion tenon)
step("checking the metadata" pkg-config --validate tenon)
