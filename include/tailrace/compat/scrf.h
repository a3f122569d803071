! scrf.h - what programs in Fortran that were written for SCR include, with tailrace beneath. The
! subroutines are those of scr.h, with a last argument for the result; docs/scr.md lists them. What scr.h says
! about failures, ranks and threads holds here too. Arguments are read and written during the call alone.
! Fixed and free form can include this file.
      INTEGER SCR_SUCCESS
      PARAMETER (SCR_SUCCESS=0)
      INTEGER SCR_MAX_FILENAME
      PARAMETER (SCR_MAX_FILENAME=1024)
      INTEGER SCR_FLAG_NONE
      PARAMETER (SCR_FLAG_NONE=0)
      INTEGER SCR_FLAG_CHECKPOINT
      PARAMETER (SCR_FLAG_CHECKPOINT=1)
      INTEGER SCR_FLAG_OUTPUT
      PARAMETER (SCR_FLAG_OUTPUT=2)
