! cloverleaf.f90 - CloverLeaf saves its fields with tailrace, and goes on on any number of ranks.
!
! docs/integrations.md says where in CloverLeaf's sources the lines go that use it.
!
! Every rank has a chunk of the mesh. Neighbours both have the vertices on the edge between them, with the same
! velocities, so these arrays overlap. Everything else follows from the four fields, or is computed anew in each step.
module clover_tailrace
  use clover_module
  use tailrace
  implicit none
  private
  public :: checkpoint_open, checkpoint_step, checkpoint_close
  type(tailrace_session) :: session
  real(8), target :: times(2)
  integer, target :: counts(2)
  integer :: saved = -1
contains

  ! Restores the newest epoch of $TAILRACE_SHARED_DIR, if there is one, into a mesh that has been set up.
  subroutine checkpoint_open()
    integer :: cells(2), at(2), nx, ny, restored
    logical :: found
    if (tiles_per_chunk /= 1) error stop "only chunks of one tile can be saved"
    cells = [grid%x_cells, grid%y_cells]
    at = [chunk%left, chunk%bottom]
    nx = chunk%x_max
    ny = chunk%y_max
    call session%open(MPI_COMM_WORLD)
    associate (field => chunk%tiles(1)%field)
      call session%register("density", field%density0(1:nx, 1:ny), global_shape=cells, first=at)
      call session%register("energy", field%energy0(1:nx, 1:ny), global_shape=cells, first=at)
      call session%register("xvel", field%xvel0(1:nx + 1, 1:ny + 1), global_shape=cells + 1, first=at, overlap=.true.)
      call session%register("yvel", field%yvel0(1:nx + 1, 1:ny + 1), global_shape=cells + 1, first=at, overlap=.true.)
    end associate
    call session%register("times", times, global_shape=[2], first=[1], overlap=.true.)
    call session%register("counts", counts, global_shape=[2], first=[1], overlap=.true.)
    call session%restore(restored, found)
    if (.not. found) return
    time = times(1)
    dtold = times(2)
    step = counts(1)
    advect_x = counts(2) == 1
    if (parallel%boss) print "(a, i0)", "going on from step ", step
  end subroutine

  ! After each step. Saves if it is time to. If there is a reason to stop, this step becomes the last one.
  subroutine checkpoint_step()
    logical :: saving, stopping
    call session%should_save(saving)
    call session%should_stop(stopping)
    if (saving) call save()
    if (stopping) end_step = step
  end subroutine

  ! At the end, before MPI_Finalize. Saves the last step, too.
  subroutine checkpoint_close()
    if (saved /= step) call save()
    call session%close()
  end subroutine

  subroutine save()
    times = [time, dtold]
    counts = [step, merge(1, 0, advect_x)]
    saved = step
    call session%save(step)
  end subroutine
end module
