# cpack runs this on the staged files. For an archive it copies every shared library that they need to lib/tenon/deps, and its
# Debian copyright file to share/doc. The machine itself provides glibc, the run time of g++, the driver and libraries of CUDA,
# which are opened when first needed, and an MPI library, which belongs to its launcher.
if(NOT CPACK_GENERATOR STREQUAL "TGZ")
  return()
endif()
set(stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
file(GLOB programs ${stage}/bin/* ${stage}/libexec/tenon/tenon_*)
file(GLOB libraries ${stage}/${CPACK_TENON_LIBDIR}/libtenon_core.so.*.* ${stage}/${CPACK_TENON_LIBDIR}/tenon/plugins/*.so)
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${programs} LIBRARIES ${libraries}
  RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|util|pthread|resolv)\\.so" "^lib(stdc\\+\\+|gcc_s)\\.so" "^lib(mpi|mpich)\\.so"
    "^libtenon_core\\.so")
if(missing OR NOT needed)
  message(FATAL_ERROR "the archive lacks libraries that this machine does not have, either: ${missing}")
endif()

set(deps ${stage}/${CPACK_TENON_DEPS})
set(notices ${stage}/${CPACK_TENON_DOCDIR}/deps)
file(MAKE_DIRECTORY ${deps} ${notices})
foreach(library IN LISTS needed)
  get_filename_component(name ${library} NAME)
  get_filename_component(real ${library} REALPATH)
  file(COPY_FILE ${real} ${deps}/${name})
  file(CHMOD ${deps}/${name} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  # Packages list their files under /lib or under /usr/lib. Without dpkg the packager must add the notice.
  string(REGEX REPLACE "^/usr" "" short ${real})
  execute_process(COMMAND dpkg -S ${real} ${short} OUTPUT_VARIABLE owner ERROR_QUIET)
  string(REGEX REPLACE "[:,].*" "" owner "${owner}")
  if(owner AND EXISTS /usr/share/doc/${owner}/copyright)
    file(COPY_FILE /usr/share/doc/${owner}/copyright ${notices}/${owner})
  endif()
endforeach()
list(LENGTH needed count)
message(STATUS "${count} libraries in ${CPACK_TENON_DEPS}")
