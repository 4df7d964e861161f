# Building plugins, inside this tree and, from the installed package or by add_subdirectory, outside it.

# _tenon_find_needed(VARIABLE PLUGIN NEED): the file of a plugin that PLUGIN needs, found as `tenon` finds it; NEED is
# "vendor.name" or "vendor.name >= 1.2".
function(_tenon_find_needed variable name need)
  if(NOT need MATCHES "^([a-z0-9_.-]+)( *>= *([0-9.]+))?$")
    message(FATAL_ERROR "tenon_add_plugin(${name}): NEEDS '${need}' is no target of this build, and not of the form "
      "'vendor.name' or 'vendor.name >= 1.2'.")
  endif()
  set(id ${CMAKE_MATCH_1})
  set(least ${CMAKE_MATCH_3})
  execute_process(COMMAND ${Tenon_PROGRAM} inspect --json OUTPUT_VARIABLE list RESULT_VARIABLE status ERROR_VARIABLE error)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "tenon_add_plugin(${name}): '${Tenon_PROGRAM} inspect --json' failed: ${error}")
  endif()
  string(JSON count LENGTH "${list}")
  math(EXPR last "${count} - 1")
  set(found "none of this id")
  foreach(index RANGE ${last})
    string(JSON plugin GET "${list}" ${index} plugin)
    string(JSON failed GET "${list}" ${index} failed)
    if(NOT plugin STREQUAL id OR failed)
      continue()
    endif()
    string(JSON version GET "${list}" ${index} version)
    string(JSON file GET "${list}" ${index} file)
    if(NOT least OR version VERSION_GREATER_EQUAL least)
      set(${variable} ${file} PARENT_SCOPE)
      return()
    endif()
    set(found "version ${version} (${file})")
  endforeach()
  message(FATAL_ERROR "tenon_add_plugin(${name}): NEEDS '${need}', found ${found} among the plugins that `tenon inspect` "
    "lists; install it, or name its folder in TENON_PLUGIN_PATH.")
endfunction()

# tenon_add_plugin(NAME [KIND KIND...] SOURCES FILE... [LIBRARIES TARGET...] [NEEDS PLUGIN...] [OUTPUT_DIRECTORY DIR])
# One plugin = one shared library NAME.so: MODULE, hidden visibility, no undefined symbols, exactly one export (the
# version script also hides the templates of the standard library, which hidden visibility does not).
# KIND says what it offers; the conformance test carries it as label. NEEDS are other plugins, as in PluginInfo::needs:
# targets of this build, or "vendor.name >= 1.2", which must be installed; the conformance test loads them. OUTPUT_DIRECTORY keeps a plugin of this tree out
# of the plugin folder and of the installation (test fixtures).
function(tenon_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_DIRECTORY" "KIND;SOURCES;LIBRARIES;NEEDS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tenon_add_plugin(${name}): unexpected '${arg_UNPARSED_ARGUMENTS}'; write "
      "tenon_add_plugin(${name} KIND optimizer SOURCES ${name}.cpp LIBRARIES target).")
  endif()
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "tenon_add_plugin(${name}): SOURCES is empty; name at least one source file.")
  endif()
  set(kinds layer model precision optimizer schedule sync recovery device transport dataset simulator power observer transform importer tokenizer reward tier)
  foreach(kind IN LISTS arg_KIND)
    if(NOT kind IN_LIST kinds)
      string(REPLACE ";" ", " kinds "${kinds}")
      message(FATAL_ERROR "tenon_add_plugin(${name}): there is no kind '${kind}'; expected one of ${kinds}.")
    endif()
  endforeach()
  add_library(${name} MODULE ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tenon::core ${arg_LIBRARIES})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_compile_options(${name} PRIVATE -ffp-contract=off)
  target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,--exclude-libs,ALL
    -Wl,--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/tenon_plugin.map)
  set_target_properties(${name} PROPERTIES
    PREFIX ""
    CXX_VISIBILITY_PRESET hidden
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/tenon_plugin.map
    TENON_KINDS "${arg_KIND}")
  set(needed "")
  foreach(need IN LISTS arg_NEEDS)
    if(TARGET ${need})
      add_dependencies(${name} ${need})
      list(APPEND needed $<TARGET_FILE:${need}>)
    else()
      _tenon_find_needed(file ${name} "${need}")
      list(APPEND needed ${file})
    endif()
  endforeach()
  set_target_properties(${name} PROPERTIES TENON_NEEDED "${needed}")
  if(arg_OUTPUT_DIRECTORY)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT_DIRECTORY})
  endif()
  get_filename_component(root ${CMAKE_CURRENT_FUNCTION_LIST_DIR} DIRECTORY)
  if(PROJECT_SOURCE_DIR STREQUAL root)   # a plugin of this tree
    target_link_libraries(${name} PRIVATE tenon_rules)
    if(arg_OUTPUT_DIRECTORY)   # for tests, which call it briefly
      target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
    else()
      set(light "")
      if(tenon_plugins_light)   # by plugins/CMakeLists.txt
        set(light LIGHT)
      endif()
      tenon_quick_to_build(${name} ${light})
      set_target_properties(${name} PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/tenon/plugins
        INSTALL_RPATH "$ORIGIN/../..:$ORIGIN/../deps")
      target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
      # TENON_LEAVE_OUT holds TARGET=COMPONENT,COMPONENT... of plugins that are built only by their own targets.
      set(left ${TENON_LEAVE_OUT})
      list(FILTER left INCLUDE REGEX "^${name}=")
      if(left)
        set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
      else()
        install(TARGETS ${name} LIBRARY DESTINATION ${TENON_PLUGIN_INSTALL_DIR})
      endif()
    endif()
  endif()
endfunction()

# tenon_add_conformance_test(TARGET [CASES FILE] [NAME NAME] [DEVICE TYPE] [FILTER GLOB...] [TIMEOUT SECONDS])
# A ctest entry that runs `tenon conformance` on the plugin TARGET. CASES is conformance.toml of the current source
# folder where there is one; NAME is TARGET_conformance; DEVICE, that it runs on, cpu; TIMEOUT, for all checks together, 300.
function(tenon_add_conformance_test target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "CASES;NAME;DEVICE;TIMEOUT" "FILTER")
  if(arg_UNPARSED_ARGUMENTS OR NOT TARGET ${target})
    message(FATAL_ERROR "tenon_add_conformance_test(${target} ${arg_UNPARSED_ARGUMENTS}): expected the target of a "
      "plugin, then CASES FILE, NAME NAME, DEVICE TYPE, FILTER GLOB..., TIMEOUT SECONDS.")
  endif()
  if(NOT arg_CASES AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/conformance.toml)
    set(arg_CASES conformance.toml)
  endif()
  if(arg_CASES)
    get_filename_component(cases ${arg_CASES} ABSOLUTE)
    if(NOT EXISTS ${cases})
      message(FATAL_ERROR "tenon_add_conformance_test(${target}): there is no file ${cases}.")
    endif()
    list(APPEND arguments --cases ${cases})
  endif()
  foreach(glob IN LISTS arg_FILTER)
    list(APPEND arguments --filter ${glob})
  endforeach()
  if(arg_DEVICE)
    list(APPEND arguments --device ${arg_DEVICE})
  endif()
  if(NOT arg_NAME)
    set(arg_NAME ${target}_conformance)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  # The program is a target of this build (declared after the plugins), or part of the installed package.
  if(TARGET tenon OR PROJECT_NAME STREQUAL "tenon")
    set(program $<TARGET_FILE:tenon>)
  elseif(EXISTS "${Tenon_PROGRAM}")
    set(program ${Tenon_PROGRAM})
  else()
    message(FATAL_ERROR "tenon_add_conformance_test(${target}): there is no program '${Tenon_PROGRAM}'. Install the "
      "whole of Tenon, or set Tenon_PROGRAM.")
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${program} conformance $<TARGET_FILE:${target}> ${arguments})
  get_target_property(kinds ${target} TENON_KINDS)
  if(NOT kinds)
    set(kinds "")
  endif()
  # Waiting threads sleep: on a busy machine spinning threads take the processor from those that they wait for.
  set_tests_properties(${arg_NAME} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "conformance;${kinds}"
    ENVIRONMENT "OMP_WAIT_POLICY=passive")
  get_target_property(needed ${target} TENON_NEEDED)
  if(needed)
    list(JOIN needed ":" needed)
    set_property(TEST ${arg_NAME} APPEND PROPERTY
      ENVIRONMENT_MODIFICATION "TENON_PLUGIN_PATH=path_list_prepend:${needed}")
  endif()
endfunction()
