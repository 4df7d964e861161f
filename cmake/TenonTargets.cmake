# Helpers that every folder uses: compile rules, areas of the core, tests.

# Numerics must not depend on contraction or fast-math. Warnings are enabled.
add_library(tenon_rules INTERFACE)
target_compile_features(tenon_rules INTERFACE cxx_std_20)
target_compile_options(tenon_rules INTERFACE
  $<$<COMPILE_LANGUAGE:CXX,C>:-ffp-contract=off -Wall -Wextra -Wno-unused-parameter>
  $<$<AND:$<COMPILE_LANGUAGE:CXX,C>,$<BOOL:${TENON_WARNINGS_AS_ERRORS}>>:-Werror>
  # GCC 12 reports a false overlap inside std::string at -O3.
  # GCC treats sources compiled together (CMAKE_UNITY_BUILD) as headers, and warns of their anonymous namespaces.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict;-Wno-subobject-linkage>)
target_compile_definitions(tenon_rules INTERFACE
  $<$<BOOL:${TENON_PORTABLE_THREADS}>:TENON_PORTABLE_THREADS=1>)

# tenon_built_library(TARGET KIND FILE INCLUDES...): TARGET is FILE of the build TENON_BUILT, in place of one that is compiled.
function(tenon_built_library target kind file)
  add_library(${target} ${kind} IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${TENON_BUILT}/${file})
  target_include_directories(${target} INTERFACE ${ARGN})
  target_compile_features(${target} INTERFACE cxx_std_20)
endfunction()

# tenon_sources_at_a_time(N): for targets of this folder whose sources use the same names in anonymous namespaces, where builds
# compile all sources of a target at a time.
macro(tenon_sources_at_a_time count)
  if(CMAKE_UNITY_BUILD_BATCH_SIZE STREQUAL "0")
    set(CMAKE_UNITY_BUILD_BATCH_SIZE ${count})
  endif()
endmacro()

# GCC 12 reports false overflows of std::string, at -O1 and in precompiled headers.
set(by_gnu $<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>)
set(tenon_string_options $<$<AND:${by_gnu}>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
set(TENON_LIGHT_FLAGS "-O1" CACHE STRING "Flags of code that no step of training waits for, beside those of the build type; -O0 where a build is only compiled")
set(tenon_light_options $<$<CONFIG:Release>:${TENON_LIGHT_FLAGS}> ${tenon_string_options} $<$<AND:${by_gnu}>:-Wno-maybe-uninitialized>)

# Flags of programs that print: their pages and tables take milliseconds, and their compilation minutes.
set(TENON_PRINTING_FLAGS "-O1" CACHE STRING "Flags of the command line and its reports, beside those of the build type; -O0 is quicker to build")

# tenon_quick_to_build(TARGET [LIGHT | PRINTS] [OWN])
# Halves the time of a build from nothing. LIGHT: this code parses and decides, and a step of training does not wait for it, so it
# is compiled with TENON_LIGHT_FLAGS. PRINTS: it is part of the command line, with TENON_PRINTING_FLAGS. Always: the headers of
# other projects that most sources include are read once for all targets, except for targets with macros of their OWN (OpenMP).
# Builds of one source at a time (the preset `dev`) do not use this, so that a missing #include is found. Neither does clang,
# which needs the same flags in all targets.
function(tenon_quick_to_build target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIGHT;PRINTS;OWN" "" "")
  if(arg_LIGHT)
    target_compile_options(${target} PRIVATE ${tenon_light_options})
  elseif(arg_PRINTS)
    target_compile_options(${target} PRIVATE ${tenon_light_options} $<$<CONFIG:Release>:${TENON_PRINTING_FLAGS}>)
  endif()
  if(NOT CMAKE_UNITY_BUILD OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  target_compile_options(${target} PRIVATE ${tenon_string_options})
  if(arg_OWN)
    return()
  endif()
  # Precompiled headers must have been read with the same macros.
  target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  set(read tenon_headers)
  set(headers <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <functional> <iostream> <limits> <map>
    <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread> <utility> <variant> <vector>
    <fmt/format.h>)
  if(arg_PRINTS)
    set(read tenon_printing_headers)
    list(APPEND headers <boost/program_options.hpp> <nlohmann/json.hpp>)
    target_link_libraries(${target} PRIVATE Boost::program_options nlohmann_json::nlohmann_json)
  endif()
  if(NOT TARGET ${read})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${read}.cpp CONTENT "")
    add_library(${read} OBJECT ${PROJECT_BINARY_DIR}/${read}.cpp)
    target_link_libraries(${read} PRIVATE tenon_rules fmt::fmt)
    target_precompile_headers(${read} PRIVATE ${headers})
    if(arg_PRINTS)
      target_link_libraries(${read} PRIVATE Boost::program_options nlohmann_json::nlohmann_json)
      target_compile_options(${read} PRIVATE $<$<CONFIG:Release>:${TENON_PRINTING_FLAGS}>)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${read})
endfunction()

set(TENON_UNSANITIZED "" CACHE STRING "Areas of the core that a build with sanitizers compiles without them, since it runs no suite of theirs")

# tenon_core_area(NAME [LIGHT] [OWN] SOURCES ... [LIBRARIES ...])
# Makes one folder of core/src an object library, so that an area builds and fails alone;
# core/CMakeLists.txt joins the areas into libtenon_core. LIGHT, OWN: see tenon_quick_to_build.
function(tenon_core_area name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "LIGHT;OWN" "" "SOURCES;LIBRARIES")
  add_library(tenon_core_${name} OBJECT ${arg_SOURCES})
  target_include_directories(tenon_core_${name} PUBLIC
    ${PROJECT_SOURCE_DIR}/core/include ${PROJECT_SOURCE_DIR}/core/src)
  target_link_libraries(tenon_core_${name} PRIVATE tenon_rules ${arg_LIBRARIES})
  if(name IN_LIST TENON_UNSANITIZED)
    target_compile_options(tenon_core_${name} PRIVATE -fno-sanitize=all)
  endif()
  set(how "")
  foreach(word LIGHT OWN)
    if(arg_${word})
      list(APPEND how ${word})
    endif()
  endforeach()
  tenon_quick_to_build(tenon_core_${name} ${how})
endfunction()

# tenon_service_area(NAME ...)
# Adds one folder of services/. It may include the core's internal headers, and no area of the core may include it.
function(tenon_service_area name)
  tenon_core_area(${name} ${ARGN})
  target_include_directories(tenon_core_${name} PUBLIC ${PROJECT_SOURCE_DIR}/services ${PROJECT_SOURCE_DIR}/services/include)
endfunction()

# Suites take more time to compile than to run, and most call code that is optimised elsewhere.
set(test_options ${tenon_light_options} $<$<CONFIG:Release>:-O0>)

configure_file(${CMAKE_CURRENT_LIST_DIR}/test_paths.hpp.in ${PROJECT_BINARY_DIR}/test_paths/test_paths.hpp @ONLY)

# Headers that nearly every suite includes are read once for all suites: reading them takes longer than most suites themselves.
# CMAKE_DISABLE_PRECOMPILE_HEADERS switches it off, for compiler caches that do not know such files.
function(tenon_test_headers name)  # tenon_test_headers(NAME FLAG...)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/test_paths/precompiled.cpp CONTENT "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/test_paths/precompiled.cpp)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_link_libraries(${name} PRIVATE tenon_rules GTest::gtest GTest::gmock)
  target_compile_options(${name} PRIVATE ${ARGN} -fPIE)
  target_precompile_headers(${name} PRIVATE
    <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional> <limits> <map> <memory>
    <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <utility> <vector>
    <gmock/gmock.h> <gtest/gtest.h>)
endfunction()
if(TENON_BUILD_TESTS)
  tenon_test_headers(tenon_test_headers ${test_options})
  tenon_test_headers(tenon_computing_test_headers ${tenon_light_options})
endif()

# tenon_test_entry(NAME PROGRAM TIMEOUT LABELS [ENVIRONMENT VARIABLE=VALUE...] [ARGUMENTS WORD...])
# A ctest entry: a program of tests with the plugins of this build.
function(tenon_test_entry name program timeout labels)
  cmake_parse_arguments(PARSE_ARGV 4 arg "" "" "ENVIRONMENT;ARGUMENTS")
  add_test(NAME ${name} COMMAND ${program} ${arg_ARGUMENTS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # Waiting threads sleep: on a busy machine spinning ones take the processor from those they wait for.
  # Runs keep digests; tests keep them out of the user's folder.
  set(environment TENON_PLUGIN_PATH=${PROJECT_BINARY_DIR}/lib/tenon/plugins OMP_WAIT_POLICY=passive
    XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/cache ${arg_ENVIRONMENT})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}" ENVIRONMENT "${environment}")
endfunction()

# tenon_test(NAME SOURCES ... [LIBRARIES ...] [LABELS ...] [TIMEOUT S] [NO_ENTRY] [COMPUTES])
# One GoogleTest program and one ctest entry. NO_ENTRY: the caller adds the entries. COMPUTES: it is optimised, since it does much by
# itself, as all suites of folders that set tenon_tests_compute. Sources of one program are compiled together: where they use the same
# names, each has a namespace of its own.
function(tenon_test name)
  if(NOT TENON_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_ENTRY;COMPUTES" "TIMEOUT" "SOURCES;LIBRARIES;LABELS;DEFINITIONS;ARGUMENTS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tenon_rules ${arg_LIBRARIES} GTest::gtest GTest::gmock GTest::gtest_main)
  # <test_paths.hpp>: paths of the tree and its build. A header instead of definitions, so that only the tests that
  # need it depend on the place of the tree.
  target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/test_paths)
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  if(tenon_tests_compute OR arg_COMPUTES)
    target_compile_options(${name} PRIVATE ${tenon_light_options})
    target_precompile_headers(${name} REUSE_FROM tenon_computing_test_headers)
  else()
    target_compile_options(${name} PRIVATE ${test_options})
    target_precompile_headers(${name} REUSE_FROM tenon_test_headers)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # Compiled by itself: otherwise the compiler warns of memory from its `new` that `free` releases.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/device/count_allocations.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT arg_NO_ENTRY)
    tenon_test_entry(${name} ${name} ${arg_TIMEOUT} "${arg_LABELS}" ARGUMENTS ${arg_ARGUMENTS})
  endif()
endfunction()

# tenon_depend_on_plugins(TARGET): builds every plugin of this tree before TARGET.
function(tenon_depend_on_plugins target)
  get_property(folders DIRECTORY ${PROJECT_SOURCE_DIR}/plugins PROPERTY SUBDIRECTORIES)
  foreach(folder IN LISTS folders)
    get_property(candidates DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(candidate IN LISTS candidates)
      get_target_property(type ${candidate} TYPE)
      if(type STREQUAL "MODULE_LIBRARY")
        add_dependencies(${target} ${candidate})
      endif()
    endforeach()
  endforeach()
endfunction()

option(TENON_SUITES_APART "A program for each suite file, also where suites share one: quicker where few of them are built" OFF)

# tenon_suites(PROGRAM ENTRIES SUITES NAME... [FOLDER F] [NEEDS TARGET...] [INCLUDES FOLDER...] [PLUGINS] [COMPUTES]
#              [LIBRARIES ...] [DEFINITIONS ...] [LABELS ...] [TIMEOUT S])
# One program of the suites F/NAME_test.cpp, so that what they share is read and instantiated a few times and not for each, and
# one ctest entry per suite: ENTRIES with @ for NAME, which is also a target to build. Each source has a namespace of its own.
# NEEDS, PLUGINS: targets, or all plugins of this tree, that are built before.
function(tenon_suites program entries)
  if(NOT TENON_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 2 arg "PLUGINS;COMPUTES" "FOLDER;TIMEOUT" "SUITES;NEEDS;INCLUDES;LABELS;LIBRARIES;DEFINITIONS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_FOLDER)
    set(arg_FOLDER .)
  endif()
  string(REPLACE "@" "\\1" entry_of "${entries}")
  list(TRANSFORM arg_SUITES REPLACE "^(.+)$" "${entry_of}" OUTPUT_VARIABLE names)
  list(TRANSFORM arg_SUITES REPLACE "^(.+)$" "${arg_FOLDER}/\\1_test.cpp" OUTPUT_VARIABLE sources)
  if(arg_COMPUTES)
    set(tenon_tests_compute ON)
  endif()
  if(TENON_SUITES_APART)
    set(programs ${names})
  else()
    set(programs ${program})
  endif()
  foreach(name IN LISTS programs)
    set(own ${sources})
    if(TENON_SUITES_APART)
      list(POP_FRONT sources own)
    endif()
    tenon_test(${name} NO_ENTRY SOURCES ${own} ${PROJECT_SOURCE_DIR}/tests/one_file_main.cpp
      LIBRARIES ${arg_LIBRARIES} DEFINITIONS ${arg_DEFINITIONS})
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 8)
    target_include_directories(${name} PRIVATE ${arg_INCLUDES})
    if(arg_NEEDS)
      add_dependencies(${name} ${arg_NEEDS})
    endif()
    if(arg_PLUGINS)
      tenon_depend_on_plugins(${name})
    endif()
  endforeach()
  foreach(suite name IN ZIP_LISTS arg_SUITES names)
    if(NOT TENON_SUITES_APART)
      add_custom_target(${name} DEPENDS ${program})
      set(runs ${program})
    else()
      set(runs ${name})
    endif()
    tenon_test_entry(${name} ${runs} ${arg_TIMEOUT} "${arg_LABELS}" ARGUMENTS --file=${suite}_test.cpp)
  endforeach()
endfunction()

# tenon_device_test(PROGRAM NAME DEVICE [OPTIONS TOML] [DEPENDS TARGET...])
# Adds an entry and a target NAME: PROGRAM, a suite with tests/device/main.cpp, on the device that the environment names. On
# `cuda` it has the label gpu, and is skipped with the reason on a machine without a GPU.
function(tenon_device_test program name device)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "OPTIONS" "DEPENDS")
  set(labels)
  if(device STREQUAL cuda)
    set(labels gpu)
  endif()
  tenon_test_entry(${name} ${program} 300 "${labels}" ENVIRONMENT TENON_TEST_DEVICE=${device} "TENON_TEST_DEVICE_OPTIONS=${arg_OPTIONS}")
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
  add_custom_target(${name} DEPENDS ${program} tenon_device_${device} tenon_device_cpu ${arg_DEPENDS})
  if(device STREQUAL cuda)
    add_dependencies(tenon_gpu_tests ${name})
  endif()
endfunction()

# tenon_device_memory_test(TARGET [SOURCES FILE...] [LIBRARIES TARGET...] [DEPENDS TARGET...])
# The device_memory_test.cpp of a plugin's folder, and SOURCES: its components beside the processor's, on every device with memory of its own.
function(tenon_device_memory_test target)
  if(NOT TENON_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;DEPENDS")
  string(REPLACE tenon_ "" name ${target})
  tenon_test(${name}_device_memory SOURCES device_memory_test.cpp ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/device/main.cpp
    LIBRARIES tenon_core ${arg_LIBRARIES} NO_ENTRY)
  target_include_directories(${name}_device_memory PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  set(devices cuda_emulated)
  if(TENON_CUDA)
    list(APPEND devices cuda)
  endif()
  foreach(device IN LISTS devices)
    tenon_device_test(${name}_device_memory ${name}_${device}_test ${device} DEPENDS ${target} ${arg_DEPENDS})
  endforeach()
endfunction()

# tenon_vector_objects(RESULT OWNER SOURCE WORD GETTER): SOURCE once for each instruction set that has kernels, with its flags and
# TENON_<WORD>_SET; RESULT lists these object libraries. OWNER is told of each set by TENON_HAS_<WORD>_<SET>, and a test sees that
# GETTER_<set> (without its outer name space) is all that the objects export.
function(tenon_vector_objects result owner source word getter)
  get_property(sets GLOBAL PROPERTY TENON_VECTOR_SETS)
  string(REPLACE "::" "_" stem ${getter})
  foreach(name IN ITEMS portable ${sets})
    set(objects tenon_${stem}_${name})
    get_property(flags GLOBAL PROPERTY TENON_VECTOR_FLAGS_${name})
    add_library(${objects} OBJECT ${source})
    target_compile_definitions(${objects} PRIVATE TENON_${word}_SET=${name})
    target_compile_options(${objects} PRIVATE ${flags})
    target_link_libraries(${objects} PRIVATE tenon_rules)
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)
    string(TOUPPER ${name} upper)
    target_compile_definitions(${owner} PRIVATE TENON_HAS_${word}_${upper}=1)
    # Sanitizers add symbols of their own.
    if(TENON_BUILD_TESTS AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
      add_test(NAME ${stem}_${name}_exports COMMAND ${CMAKE_COMMAND} "-DNM=${CMAKE_NM}" "-DOBJECTS=$<TARGET_OBJECTS:${objects}>"
        -DGETTER=${getter}_${name} -P ${PROJECT_SOURCE_DIR}/cmake/check_exports.cmake)
    endif()
    list(APPEND all ${objects})
  endforeach()
  set(${result} ${all} PARENT_SCOPE)
endfunction()
