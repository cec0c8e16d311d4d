! MPI-IO from Fortran: explicit offsets, a strided view, collective and nonblocking calls, and Fortran's own unformatted
! and formatted units beside them.
program io
  use mpi
  implicit none
  integer, parameter :: count = 20011
  integer :: code, rank, ranks, file, view, request, i, neighbour, wrong, sum, unit
  integer :: status(MPI_STATUS_SIZE)
  integer :: out(count), in(count)
  integer(kind=MPI_OFFSET_KIND) :: offset, file_bytes
  character(len=80) :: line
  real(kind=8) :: numbers(1000), again(1000)

  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  wrong = 0
  do i = 1, count
     out(i) = element(rank, i)
  end do

  call MPI_File_open(MPI_COMM_WORLD, 'data', MPI_MODE_RDWR + MPI_MODE_CREATE, MPI_INFO_NULL, file, code)
  call check('open', code == MPI_SUCCESS)
  offset = int(rank, MPI_OFFSET_KIND) * count * 4
  call MPI_File_write_at(file, offset, out, count, MPI_INTEGER, status, code)
  call check('write_at', code == MPI_SUCCESS)
  call MPI_File_sync(file, code)
  call MPI_Barrier(MPI_COMM_WORLD, code)
  neighbour = mod(rank + 1, ranks)
  offset = int(neighbour, MPI_OFFSET_KIND) * count * 4
  call MPI_File_read_at_all(file, offset, in, count, MPI_INTEGER, status, code)
  call check('read_at_all', all(in == [(element(neighbour, i), i = 1, count)]))
  call MPI_File_get_size(file, file_bytes, code)
  call check('get_size', file_bytes == int(ranks, MPI_OFFSET_KIND) * count * 4)

  call MPI_Type_vector(count, 1, ranks, MPI_INTEGER, view, code)
  call MPI_Type_commit(view, code)
  offset = rank * 4
  call MPI_File_set_view(file, offset, MPI_INTEGER, view, 'native', MPI_INFO_NULL, code)
  call check('set_view', code == MPI_SUCCESS)
  call MPI_File_write_all(file, out, count, MPI_INTEGER, status, code)
  call check('write_all', code == MPI_SUCCESS)
  in = 0
  offset = 0
  call MPI_File_iread_at(file, offset, in, count, MPI_INTEGER, request, code)
  call MPI_Wait(request, status, code)
  call check('iread_at through the view', all(in == out))
  call MPI_File_close(file, code)
  call MPI_Type_free(view, code)

  if (rank == 0) then
     call random_numbers(numbers)
     open(newunit=unit, file='unformatted', form='unformatted', access='stream', status='replace')
     write(unit) numbers
     rewind(unit)
     read(unit) again
     close(unit)
     if (any(again /= numbers)) wrong = wrong + 1
     open(newunit=unit, file='sequential', form='unformatted', status='replace')
     write(unit) numbers(1:10)
     write(unit) numbers
     rewind(unit)
     read(unit)
     read(unit) again
     close(unit)
     if (any(again /= numbers)) wrong = wrong + 1
     open(newunit=unit, file='text', status='replace')
     do i = 1, 500
        write(unit, '(a,i6,f12.6)') 'line', i, numbers(i)
     end do
     backspace(unit)
     read(unit, '(a)') line
     print '(2a)', 'last line: ', trim(line)
     close(unit)
     open(newunit=unit, file='text', position='append')
     write(unit, '(a)') 'appended'
     close(unit)
     open(newunit=unit, file='direct', access='direct', recl=800, form='unformatted', status='replace')
     do i = 10, 1, -1
        write(unit, rec=i) numbers(100 * i - 99:100 * i)
     end do
     read(unit, rec=7) again(1:100)
     close(unit)
     if (any(again(1:100) /= numbers(601:700))) wrong = wrong + 1
     print '(a,i0)', 'wrong: ', wrong
  end if
  call MPI_Barrier(MPI_COMM_WORLD, code)
  call MPI_Allreduce(wrong, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
  call MPI_Finalize(code)
  if (sum > 0) stop 1

contains

  pure integer function element(of_rank, i)
    integer, intent(in) :: of_rank, i
    element = of_rank * 1000003 + i * 7
  end function element

  subroutine check(what, holds)
    character(len=*), intent(in) :: what
    logical, intent(in) :: holds
    integer :: failed, failures
    failed = merge(0, 1, holds)
    call MPI_Allreduce(failed, failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
    if (rank == 0) print '(3a)', what, ': ', merge('right', 'WRONG', failures == 0)
    wrong = wrong + failures
  end subroutine check

  subroutine random_numbers(values)
    real(kind=8), intent(out) :: values(:)
    integer :: k
    do k = 1, size(values)
       values(k) = mod(k * 7919, 10007) / 10007.0d0
    end do
  end subroutine random_numbers
end program io
