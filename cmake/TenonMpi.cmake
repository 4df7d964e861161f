# The MPI libraries of the machine, and tests that their launchers start. Debian allows both to be installed, so libraries and
# launchers are found by their own paths and names: `mpi` alone is the system's current alternative.
find_path(TENON_OPENMPI_INCLUDE mpi.h NO_DEFAULT_PATH
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include /usr/lib64/openmpi/include /opt/openmpi/include)
find_library(TENON_OPENMPI_LIBRARY mpi NO_DEFAULT_PATH
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib /usr/lib64/openmpi/lib /opt/openmpi/lib)
find_program(TENON_OPENMPI_RUN mpirun.openmpi)
find_path(TENON_MPICH_INCLUDE mpi.h NO_DEFAULT_PATH
  PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/mpich /usr/include/mpich-${CMAKE_SYSTEM_PROCESSOR} /opt/mpich/include)
find_library(TENON_MPICH_LIBRARY mpich)
find_program(TENON_MPICH_RUN mpirun.mpich)
mark_as_advanced(TENON_OPENMPI_INCLUDE TENON_OPENMPI_LIBRARY TENON_OPENMPI_RUN
                 TENON_MPICH_INCLUDE TENON_MPICH_LIBRARY TENON_MPICH_RUN)
set(TENON_OPENMPI_ARGUMENTS --oversubscribe --bind-to none)
set(TENON_MPICH_ARGUMENTS "")

# tenon_mpi_tests(NAME VENDOR openmpi|mpich RANKS N... COMMAND WORD... [LABELS ...])
# Adds one test NAME_N for each number of ranks. Where the library or its launcher is missing, adds one test NAME that is
# skipped, as .ci/skips permits.
function(tenon_mpi_tests name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "VENDOR" "RANKS;COMMAND;LABELS")
  string(TOUPPER ${arg_VENDOR} vendor)
  if(NOT TENON_${vendor}_INCLUDE OR NOT TENON_${vendor}_LIBRARY OR NOT TENON_${vendor}_RUN)
    add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E false)
    set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 1)
    return()
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}_${ranks}
      COMMAND ${TENON_${vendor}_RUN} -n ${ranks} ${TENON_${vendor}_ARGUMENTS} ${arg_COMMAND})
    # Containers often forbid the single-copy path of shared memory, which Open MPI then complains about.
    set_tests_properties(${name}_${ranks} PROPERTIES TIMEOUT 120 PROCESSORS 2 LABELS "${arg_LABELS}"
      ENVIRONMENT "TENON_PLUGIN_PATH=${PROJECT_BINARY_DIR}/lib/tenon/plugins;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_btl_vader_single_copy_mechanism=none")
  endforeach()
endfunction()
