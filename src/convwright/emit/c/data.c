/* ---- What was asked for ---- */

/*@data@*/
