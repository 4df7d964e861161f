# tenon_add_plugin(NAME SOURCES ... [LIBRARIES ...] [OUTPUT_DIRECTORY DIR])
# One plugin = one shared library: MODULE, hidden visibility, no undefined symbols, exactly one export (the version
# script also hides the templates of the standard library, which hidden visibility does not).
# OUTPUT_DIRECTORY keeps a plugin of this tree out of the plugin folder and of the installation (test fixtures).
# Used inside this tree and, from the installed package, by plugins outside it.
function(tenon_add_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_DIRECTORY" "SOURCES;LIBRARIES")
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "tenon_add_plugin(${name}): SOURCES is empty; name at least one source file.")
  endif()
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
    LINK_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/tenon_plugin.map)
  if(arg_OUTPUT_DIRECTORY)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${arg_OUTPUT_DIRECTORY})
  endif()
  if(TARGET tenon_rules)   # inside this tree
    target_link_libraries(${name} PRIVATE tenon_rules)
    if(NOT arg_OUTPUT_DIRECTORY)
      set_target_properties(${name} PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/tenon/plugins
        INSTALL_RPATH "$ORIGIN/../..")
      install(TARGETS ${name} LIBRARY DESTINATION ${TENON_PLUGIN_INSTALL_DIR})
    endif()
  endif()
endfunction()
