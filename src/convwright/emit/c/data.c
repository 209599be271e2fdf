/* ---- This problem ---- */

/*@data@*/
